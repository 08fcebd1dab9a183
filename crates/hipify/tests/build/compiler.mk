# The compiler's usual name is nvcc.
CC      = nvcc
ARCH    = sm_60
CFLAGS := $(EXTRA_CFLAGS) -std c++17 -Xcompiler -Wall -arch=$(ARCH) -G

main: main.cu
	$(CC) $(CFLAGS) -ptx $< -o $@
