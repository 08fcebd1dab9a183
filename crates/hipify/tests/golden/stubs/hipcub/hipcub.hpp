// Declarations after the documented signatures, only of what the golden files use, so that a wrong argument fails to compile.
#pragma once

namespace hipcub {
template <typename Key, int THREADS, int ITEMS> class BlockRadixSort;

struct DeviceReduce {
  template <typename Input, typename Output, typename Count>
  static hipError_t Sum(void *temporary, size_t &bytes, Input, Output, Count, hipStream_t = 0);
};
}  // namespace hipcub
