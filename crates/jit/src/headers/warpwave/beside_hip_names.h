// CUDA's names for the functions of beside_hip.h.
#pragma once

// Where blockDim.x is an object without contents, as in HIP 5, a comparison with a number finds no best function.
#define __WW_INDEX_ORDER(name, op)                                                                                                 \
    template <class I> __WW_DEVICE typename __warpwave::enable_if<__is_empty(I), unsigned int>::type name(unsigned int a, I index) {    \
        unsigned int b = index;                                                                                                    \
        return a op b ? a : b;                                                                                                     \
    }                                                                                                                              \
    template <class I> __WW_DEVICE typename __warpwave::enable_if<__is_empty(I), unsigned int>::type name(I index, unsigned int a) {    \
        unsigned int b = index;                                                                                                    \
        return a op b ? a : b;                                                                                                     \
    }
__WW_INDEX_ORDER(min, <)
__WW_INDEX_ORDER(max, >)
#undef __WW_INDEX_ORDER

#define __shfl_sync __warpwave::shfl_sync
#define __shfl_up_sync __warpwave::shfl_up_sync
#define __shfl_down_sync __warpwave::shfl_down_sync
#define __shfl_xor_sync __warpwave::shfl_xor_sync
#define __ballot_sync __warpwave::ballot_sync
#define __any_sync __warpwave::any_sync
#define __all_sync __warpwave::all_sync
#define __uni_sync __warpwave::uni_sync
#define __activemask __warpwave::activemask
#define __syncwarp __warpwave::syncwarp
#define __match_any_sync __warpwave::match_any_sync
#define __match_all_sync __warpwave::match_all_sync
#define __reduce_add_sync __warpwave::reduce_add_sync
#define __reduce_min_sync __warpwave::reduce_min_sync
#define __reduce_max_sync __warpwave::reduce_max_sync
#define __reduce_and_sync __warpwave::reduce_and_sync
#define __reduce_or_sync __warpwave::reduce_or_sync
#define __reduce_xor_sync __warpwave::reduce_xor_sync
#define __dp4a __warpwave::dp4a
#define __dp2a_lo __warpwave::dp2a_lo
#define __dp2a_hi __warpwave::dp2a_hi
#define __ldcg __warpwave::load
#define __ldca __warpwave::load
#define __ldcs __warpwave::load
#define __ldlu __warpwave::load
#define __ldcv __warpwave::load_volatile
#define __stcg __warpwave::store
#define __stcs __warpwave::store
#define __stwb __warpwave::store
#define __stwt __warpwave::store
#define __nanosleep __warpwave::nanosleep
#define __trap __builtin_trap
#define __brkpt __builtin_debugtrap
#define __cvta_generic_to_shared __warpwave::to_shared
#define __cvta_shared_to_generic __warpwave::from_shared
#define __cvta_generic_to_global __warpwave::to_global
#define __cvta_global_to_generic __warpwave::from_global
#define __isGlobal __warpwave::is_global
#define __isShared __warpwave::is_shared
#define __isLocal __warpwave::is_local
