CUDA_PATH ?= /usr/local/cuda-12.4
HOST_COMPILER ?= g++
NVCC := nvcc -ccbin $(HOST_COMPILER)
SMS ?= 70 80 90
$(foreach sm,$(SMS),$(eval GENCODE_FLAGS += -gencode arch=compute_$(sm),code=sm_$(sm)))
LIBRARIES += -lcusparse -lcusolver -lcufft -lcurand -lnvrtc -lcudadevrt -lnvidia-ml
LIBRARIES += -L$(CUDA_ROOT)/lib64
ALL_CCFLAGS := -m64 $(addprefix -Xcompiler ,$(EXTRA_CCFLAGS)) --threads 0 --std=c++11
