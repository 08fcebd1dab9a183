# The compiler's usual name is nvcc.
CC      = hipcc
ARCH    = gfx90a
CFLAGS := $(EXTRA_CFLAGS) -std=c++17 -Wall --offload-arch=$(ARCH) -ggdb

main: main.cu
	$(CC) $(CFLAGS) -ptx $< -o $@
