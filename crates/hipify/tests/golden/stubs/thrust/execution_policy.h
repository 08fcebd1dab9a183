// Declarations after the documented signatures, only of what the golden files use, so that a wrong argument fails to compile.
#pragma once

namespace thrust {
namespace detail {
template <typename Derived> struct execution_policy_base {};
}  // namespace detail
namespace hip {
struct par_t : detail::execution_policy_base<par_t> {};
static const par_t par;
}  // namespace hip
}  // namespace thrust
