// Declarations after the documented signatures, only of what the golden files use, so that a wrong argument fails to compile.
#pragma once

#include <thrust/execution_policy.h>

namespace thrust {
template <typename Policy, typename Iterator> void sort(const detail::execution_policy_base<Policy> &, Iterator first, Iterator last);
}
