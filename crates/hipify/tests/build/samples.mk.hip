HIP_PATH ?= /opt/rocm
HOST_COMPILER ?= g++
NVCC := hipcc
SMS ?= 70 80 90
$(foreach sm,$(SMS),$(eval GENCODE_FLAGS += --offload-arch=gfx90a --offload-arch=gfx942 --offload-arch=gfx1100))
LIBRARIES += -lhipsparse -lhipsolver -lhipfft -lhiprand -lhiprtc -lnvidia-ml
LIBRARIES += -L$(CUDA_ROOT)/lib
ALL_CCFLAGS := -m64 $(EXTRA_CCFLAGS) --std=c++11
