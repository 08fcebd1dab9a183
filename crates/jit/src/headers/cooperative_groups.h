// Cooperative groups for AMD: thread_block, tiles of a power of two up to the wave, coalesced threads, the grid.
//
// A tile of 32 is half a wave where a wave has 64 lanes: its shuffles and votes stay within the half, and its masks have 32 bits.
// Lanes of a wave run in step, so a tile's sync() only keeps the compiler from moving memory operations across it.
#pragma once
#ifdef __clang__
#pragma clang system_header
#endif

extern "C" __device__ __attribute__((const)) int __ockl_grid_is_valid(void);
extern "C" __device__ __attribute__((convergent)) void __ockl_grid_sync(void);

namespace cooperative_groups {
class thread_block {
  public:
    typedef dim3 index_type;
    __device__ static unsigned int size() { return blockDim.x * blockDim.y * blockDim.z; }
    __device__ static unsigned int num_threads() { return size(); }
    __device__ static unsigned int thread_rank() { return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); }
    __device__ static dim3 thread_index() { return dim3(threadIdx.x, threadIdx.y, threadIdx.z); }
    __device__ static dim3 group_index() { return dim3(blockIdx.x, blockIdx.y, blockIdx.z); }
    __device__ static dim3 dim_threads() { return dim3(blockDim.x, blockDim.y, blockDim.z); }
    __device__ static dim3 group_dim() { return dim_threads(); }
    __device__ static void sync() { __syncthreads(); }
};
__device__ inline thread_block this_thread_block() { return thread_block(); }

// A barrier of the whole grid is the device library's; it needs a cooperative launch, without which is_valid() is false.
class grid_group {
  public:
    __device__ static unsigned long long num_blocks() { return (unsigned long long)gridDim.x * gridDim.y * gridDim.z; }
    __device__ static unsigned long long block_rank() {
        return blockIdx.x + (unsigned long long)gridDim.x * (blockIdx.y + (unsigned long long)gridDim.y * blockIdx.z);
    }
    __device__ static unsigned long long size() { return num_blocks() * thread_block::size(); }
    __device__ static unsigned long long num_threads() { return size(); }
    __device__ static unsigned long long thread_rank() { return block_rank() * thread_block::size() + thread_block::thread_rank(); }
    __device__ static dim3 group_dim() { return dim3(gridDim.x, gridDim.y, gridDim.z); }
    __device__ static dim3 dim_blocks() { return group_dim(); }
    __device__ static dim3 block_index() { return thread_block::group_index(); }
    __device__ static bool is_valid() { return __ockl_grid_is_valid() != 0; }
    __device__ static void sync() { __ockl_grid_sync(); }
};
__device__ inline grid_group this_grid() { return grid_group(); }

namespace __detail {
template <unsigned int Size> class tile {
    static_assert(Size > 0 && (Size & (Size - 1)) == 0 && Size <= WARPWAVE_WAVE_SIZE, "a tile is a power of two, at most a wave");
    __device__ static unsigned int first() { return __lane_id() & ~(Size - 1); }

  public:
    __device__ static constexpr unsigned int size() { return Size; }
    __device__ static constexpr unsigned int num_threads() { return Size; }
    __device__ static unsigned int thread_rank() { return __lane_id() & (Size - 1); }
    __device__ static void sync() { __syncwarp(); }
    template <class T> __device__ T shfl(T value, int rank) const { return __warpwave::shuffle(value, rank, Size); }
    template <class T> __device__ T shfl_up(T value, unsigned int by) const { return __warpwave::shuffle_up(value, by, Size); }
    template <class T> __device__ T shfl_down(T value, unsigned int by) const { return __warpwave::shuffle_down(value, by, Size); }
    template <class T> __device__ T shfl_xor(T value, int mask) const { return __warpwave::shuffle_xor(value, mask, Size); }
    __device__ __warpwave_mask ballot(int vote) const {
        return (__warpwave::ballot(vote != 0) >> first()) & (~(__warpwave_mask)0 >> (WARPWAVE_WAVE_SIZE - Size));
    }
    __device__ int any(int vote) const { return ballot(vote) != 0; }
    __device__ int all(int vote) const { return ballot(vote == 0) == 0; }
    template <class T> __device__ __warpwave_mask match_any(T value) const {
        __warpwave_mask mine = 0;
        for (unsigned int i = 0; i < Size; i++) {
            __warpwave_mask same = ballot(shfl(value, i) == value);
            if (same >> thread_rank() & 1 && mine == 0) mine = same;
        }
        return mine;
    }
    template <class T> __device__ __warpwave_mask match_all(T value, int &all_same) const {
        __warpwave_mask same = ballot(shfl(value, 0) == value), whole = ~(__warpwave_mask)0 >> (WARPWAVE_WAVE_SIZE - Size);
        all_same = same == whole;
        return all_same ? whole : 0;
    }
    // The lanes of the wave that this tile has.
    __device__ static __warpwave_mask __lanes() { return (~(__warpwave_mask)0 >> (WARPWAVE_WAVE_SIZE - Size)) << first(); }
};
} // namespace __detail

template <unsigned int Size, class Parent = void> class thread_block_tile : public __detail::tile<Size> {
  public:
    __device__ static unsigned int meta_group_rank() { return (unsigned int)Parent::thread_rank() / Size; }
    __device__ static unsigned int meta_group_size() { return ((unsigned int)Parent::size() + Size - 1) / Size; }
};
// A tile that does not say what it is a part of keeps what it was told when it was made.
template <unsigned int Size> class thread_block_tile<Size, void> : public __detail::tile<Size> {
    unsigned int rank, count;

  public:
    template <class Parent>
    __device__ thread_block_tile(const thread_block_tile<Size, Parent> &tile) : rank(tile.meta_group_rank()), count(tile.meta_group_size()) {}
    __device__ unsigned int meta_group_rank() const { return rank; }
    __device__ unsigned int meta_group_size() const { return count; }
};
template <unsigned int Size, class Parent> __device__ inline thread_block_tile<Size, Parent> tiled_partition(const Parent &) {
    return thread_block_tile<Size, Parent>();
}

// The lanes that run here together, numbered from 0 without gaps.
class coalesced_group {
    __warpwave_mask lanes;
    unsigned int rank_of_group, groups;

  public:
    __device__ explicit coalesced_group(__warpwave_mask lanes, unsigned int rank = 0, unsigned int count = 1)
        : lanes(lanes), rank_of_group(rank), groups(count) {}
    __device__ __warpwave_mask __lanes() const { return lanes; }
    __device__ unsigned int meta_group_rank() const { return rank_of_group; }
    __device__ unsigned int meta_group_size() const { return groups; }
    __device__ unsigned int size() const { return __builtin_popcountll(lanes); }
    __device__ unsigned int num_threads() const { return size(); }
    __device__ unsigned int thread_rank() const { return __builtin_popcountll(lanes & (((__warpwave_mask)1 << __lane_id()) - 1)); }
    __device__ void sync() const { __syncwarp(); }
    // The lane with this rank.
    __device__ int lane_of(unsigned int rank) const {
        __warpwave_mask rest = lanes;
        for (; rank && rest; rank--) rest &= rest - 1;
        return rest ? __builtin_ctzll(rest) : (int)__lane_id();
    }
    template <class T> __device__ T shfl(T value, unsigned int rank) const { return __warpwave::from_lane(value, lane_of(rank)); }
    template <class T> __device__ T shfl_up(T value, unsigned int by) const {
        unsigned int rank = thread_rank();
        return __warpwave::from_lane(value, lane_of(rank < by ? rank : rank - by));
    }
    template <class T> __device__ T shfl_down(T value, unsigned int by) const {
        unsigned int rank = thread_rank();
        return __warpwave::from_lane(value, lane_of(rank + by >= size() ? rank : rank + by));
    }
    // Lanes as ranks.
    __device__ __warpwave_mask __packed(__warpwave_mask some) const {
        __warpwave_mask packed = 0;
        unsigned int rank = 0;
        for (__warpwave_mask rest = lanes; rest; rest &= rest - 1, rank++)
            packed |= (some >> __builtin_ctzll(rest) & 1) << rank;
        return packed;
    }
    __device__ __warpwave_mask ballot(int vote) const { return __packed(__warpwave::ballot(vote != 0)); }
    template <class T> __device__ __warpwave_mask match_any(T value) const { return __packed(__match_any_sync(lanes, value)); }
    template <class T> __device__ __warpwave_mask match_all(T value, int &all_same) const {
        return __packed(__match_all_sync(lanes, value, &all_same));
    }
    __device__ int any(int vote) const { return (__warpwave::ballot(vote != 0) & lanes) != 0; }
    __device__ int all(int vote) const { return (__warpwave::ballot(vote == 0) & lanes) == 0; }
};
__device__ inline coalesced_group coalesced_threads() { return coalesced_group(__activemask()); }

// The threads of a group with the same label; groups count by their first threads.
template <class Group, class Label> __device__ inline coalesced_group labeled_partition(const Group &group, Label label) {
    __warpwave_mask rest = group.__lanes() & __warpwave::ballot(true), mine = 0;
    unsigned int rank = 0, count = 0;
    for (; rest; count++) {
        __warpwave_mask same = __warpwave::ballot(__warpwave::from_lane(label, __builtin_ctzll(rest)) == label) & rest;
        if (same >> __lane_id() & 1) mine = same, rank = count;
        rest &= ~same;
    }
    return coalesced_group(mine, rank, count);
}
template <class Group> __device__ inline coalesced_group binary_partition(const Group &group, bool label) {
    __warpwave_mask yes = __warpwave::ballot(label) & group.__lanes(), all = __warpwave::ballot(true) & group.__lanes();
    return coalesced_group(label ? yes : all & ~yes, label, 2);
}
// Parts of a block whose size is known only when it runs.
__device__ inline coalesced_group tiled_partition(const thread_block &block, unsigned int size) {
    unsigned int first = __lane_id() & ~(size - 1);
    __warpwave_mask lanes = (~(__warpwave_mask)0 >> (WARPWAVE_WAVE_SIZE - size)) << first;
    return coalesced_group(lanes & __warpwave::ballot(true), block.thread_rank() / size, (block.size() + size - 1) / size);
}

template <class Group> __device__ inline void sync(const Group &group) { group.sync(); }
} // namespace cooperative_groups
