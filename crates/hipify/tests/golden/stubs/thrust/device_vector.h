// Declarations after the documented signatures, only of what the golden files use, so that a wrong argument fails to compile.
#pragma once

namespace thrust {
template <typename T> struct device_vector {
  struct iterator {};
  iterator begin();
  iterator end();
  size_t size() const;
};
}  // namespace thrust
