# nvcc in a comment stays.
ROCM_PATH ?= /opt/rocm
NVCC      := $(ROCM_PATH)/bin/hipcc
ARCH      ?= gfx90a
CXX       = g++
NVCCFLAGS = -O3 -std=c++17 --offload-arch=$(ARCH) \
            -Wall -fopenmp -ffast-math
GENCODE   = --offload-arch=gfx90a --offload-arch=gfx942 --offload-arch=gfx1100
INCLUDES  = -I$(ROCM_PATH)/include -I/usr/local/cuda/samples/common/inc -I.
LDFLAGS   = -L$(ROCM_PATH)/lib -L/opt/rocm/lib -lamdhip64 -lhipblas -lcudnn -lm

SOURCES   = main.cu kernels.cu
OBJECTS   = $(SOURCES:.cu=.o)

program: $(OBJECTS)
	$(NVCC) $(NVCCFLAGS) -o $@ $^ $(LDFLAGS)

%.o: %.cu
	$(NVCC) $(NVCCFLAGS) $(GENCODE) $(INCLUDES) -fgpu-rdc -c $< -o $@

profile: program
	nvprof ./program

kernel.ptx: kernels.cu
	hipcc -ptx $< -o $@   # PTX

test:
	cmake -G Ninja -t all
.PHONY: test
