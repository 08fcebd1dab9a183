# nvcc in a comment stays.
CUDA_HOME ?= /usr/local/cuda
NVCC      := $(CUDA_HOME)/bin/nvcc
ARCH      ?= sm_70
CXX       = g++
NVCCFLAGS = -O3 -std=c++17 -arch=$(ARCH) \
            --expt-relaxed-constexpr \
            -Xcompiler "-Wall -fopenmp" --use_fast_math
GENCODE   = -gencode arch=compute_70,code=sm_70 -gencode arch=compute_80,code=sm_80
INCLUDES  = -I$(CUDA_HOME)/include -I/usr/local/cuda/samples/common/inc -I.
LDFLAGS   = -L$(CUDA_HOME)/lib64 -L/usr/local/cuda-12.2/lib64/stubs -lcudart -lcuda -lcublas -lcudnn -lm

SOURCES   = main.cu kernels.cu
OBJECTS   = $(SOURCES:.cu=.o)

program: $(OBJECTS)
	$(NVCC) $(NVCCFLAGS) -o $@ $^ $(LDFLAGS)

%.o: %.cu
	$(NVCC) $(NVCCFLAGS) $(GENCODE) $(INCLUDES) -dc $< -o $@

profile: program
	nvprof ./program

kernel.ptx: kernels.cu
	nvcc -ptx -maxrregcount=32 $< -o $@   # PTX

test:
	cmake -G Ninja -t all
.PHONY: test
