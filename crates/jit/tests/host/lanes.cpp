// The lanes of a block as threads of the host: our headers' shuffles, groups and matrix tiles, run and compared with plain loops.
//
// A wave has 64 lanes here. An exchange between lanes is a slot per lane and a barrier per wave, so the code under test must
// exchange the same number of times in every lane of a wave, as it does on a GPU where all lanes run.
#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

#define __device__
#define __host__
#define __AMDGCN_WAVEFRONT_SIZE 64

struct dim3 { unsigned int x, y, z; dim3(unsigned int x = 1, unsigned int y = 1, unsigned int z = 1) : x(x), y(y), z(z) {} };
static thread_local dim3 threadIdx(0, 0, 0);
static dim3 blockIdx(0, 0, 0), blockDim, gridDim;

struct Wave {
    std::barrier<> meet;
    int slots[64];
    bool votes[64] = {};
    // What a lane that is not there would send must matter nowhere.
    explicit Wave(int lanes) : meet(lanes) {
        for (int &slot : slots) slot = 0x5a5a5a5a;
    }
};
static std::vector<std::unique_ptr<Wave>> waves;
static std::unique_ptr<std::barrier<>> block;
static Wave &wave() { return *waves[threadIdx.x / 64]; }
static unsigned int __lane_id() { return threadIdx.x % 64; }
static void __syncthreads() { block->arrive_and_wait(); }
static unsigned long long __ballot(int vote) {
    Wave &w = wave();
    w.votes[__lane_id()] = vote != 0;
    w.meet.arrive_and_wait();
    unsigned long long mask = 0;
    for (int i = 0; i < 64; i++) mask |= (unsigned long long)w.votes[i] << i;
    w.meet.arrive_and_wait();
    return mask;
}
static int permute(int address, int value) {
    Wave &w = wave();
    w.slots[__lane_id()] = value;
    w.meet.arrive_and_wait();
    int got = w.slots[(address >> 2) & 63];
    w.meet.arrive_and_wait();
    return got;
}
#define __builtin_amdgcn_ds_bpermute permute
#define __builtin_amdgcn_fence(...)
#define __builtin_amdgcn_wave_barrier() wave().meet.arrive_and_wait()
#define __builtin_amdgcn_s_sleep(n)
#define __builtin_amdgcn_is_shared(p) false
#define __builtin_amdgcn_is_private(p) false
struct __half { unsigned short value; };
struct __half2 { __half x, y; };
static __half __hadd(__half a, __half) { return a; }
static __half2 __hadd2(__half2 a, __half2) { return a; }
#define __hip_atomic_fetch_max(address, ...) *(address)
#define __hip_atomic_fetch_min(address, ...) *(address)
static bool __hisnan(__half) { return false; }
static bool __hgt(__half a, __half b) { return a.value > b.value; }
static bool __hlt(__half a, __half b) { return a.value < b.value; }
template <class T> static T atomicCAS(T *address, T expected, T value) {
    T old = *address;
    if (old == expected) *address = value;
    return old;
}
template <class T> static T atomicCAS_system(T *address, T expected, T value) {
    return atomicCAS(address, expected, value);
}
extern "C" int __ockl_grid_is_valid(void) { return 0; }
extern "C" void __ockl_grid_sync(void) {}

#include "warpwave/beside_hip.h"
#include "warpwave/traits.h"
#include "warpwave/beside_hip_names.h"
#include "cooperative_groups.h"
#include "cooperative_groups/reduce.h"
#include "cooperative_groups/scan.h"
#include "mma.h"
namespace cg = cooperative_groups;
using namespace nvcuda;

// What plain HIP has of CUDA.
template <class T> static T __shfl(T value, int source, int width = 64) { return __warpwave::shuffle(value, source, width); }
static int __ffsll(unsigned long long mask) { return __builtin_ffsll((long long)mask); }
static unsigned int __float_as_uint(float value) { return __builtin_bit_cast(unsigned int, value); }
static float __uint_as_float(unsigned int bits) { return __builtin_bit_cast(float, bits); }
#include "ptx.inc"

static void launch(int threads, std::function<void()> kernel) {
    blockDim = dim3(threads);
    waves.clear();
    for (int left = threads; left > 0; left -= 64) waves.push_back(std::make_unique<Wave>(left < 64 ? left : 64));
    block = std::make_unique<std::barrier<>>(threads);
    std::vector<std::thread> all;
    for (int i = 0; i < threads; i++)
        all.emplace_back([=] {
            threadIdx = dim3(i, 0, 0);
            kernel();
        });
    for (auto &thread : all) thread.join();
}
static void expect(bool right, const char *what) {
    if (right) return;
    std::printf("wrong: %s in thread %u\n", what, threadIdx.x);
    std::fflush(stdout);
    std::_Exit(1);
}

template <int m, int n, int k, class P, class T, class C, class LA, class LB> void matrices(const char *what, wmma::layout_t layout) {
    // Two warps, each with matrices of its own.
    static T a[2][m * k], b[2][k * n];
    static C c[2][m * n], d[2][m * n];
    for (int w = 0; w < 2; w++) {
        for (int i = 0; i < m * k; i++) a[w][i] = (T)((i * 7 + w * 3) % 11 - 5);
        for (int i = 0; i < k * n; i++) b[w][i] = (T)((i * 5 + w) % 13 - 6);
        for (int i = 0; i < m * n; i++) c[w][i] = (C)(i % 9 - 4);
    }
    const bool row_a = std::is_same_v<LA, wmma::row_major>, row_b = std::is_same_v<LB, wmma::row_major>, row_c = layout == wmma::mem_row_major;
    launch(64, [=] {
        int w = threadIdx.x / 32;
        wmma::fragment<wmma::matrix_a, m, n, k, P, LA> fa;
        wmma::fragment<wmma::matrix_b, m, n, k, P, LB> fb;
        wmma::fragment<wmma::accumulator, m, n, k, C> fc;
        wmma::load_matrix_sync(fa, a[w], row_a ? k : m);
        wmma::load_matrix_sync(fb, b[w], row_b ? n : k);
        wmma::load_matrix_sync(fc, c[w], row_c ? n : m, layout);
        wmma::mma_sync(fc, fa, fb, fc);
        wmma::store_matrix_sync(d[w], fc, row_c ? n : m, layout);
    });
    for (int w = 0; w < 2; w++)
        for (int i = 0; i < m; i++)
            for (int j = 0; j < n; j++) {
                int at = row_c ? i * n + j : j * m + i;
                double sum = (double)c[w][at];
                for (int l = 0; l < k; l++) sum += (double)a[w][row_a ? i * k + l : l * m + i] * (double)b[w][row_b ? l * n + j : j * k + l];
                expect((double)d[w][at] == sum, what);
            }
}
template <int m, int n, int k, class P, class T, class C> void matrices(const char *what) {
    matrices<m, n, k, P, T, C, wmma::row_major, wmma::col_major>(what, wmma::mem_row_major);
    matrices<m, n, k, P, T, C, wmma::col_major, wmma::row_major>(what, wmma::mem_col_major);
}

static void groups() {
    cg::thread_block whole = cg::this_thread_block();
    unsigned int rank = whole.thread_rank(), size = whole.size();
    int value = (int)(rank * 37 % 101);
    auto of = [](unsigned int thread) { return (int)(thread * 37 % 101); };
    int sum = 0, top = 0;
    for (unsigned int i = 0; i < size; i++) sum += of(i), top = of(i) > top ? of(i) : top;
    expect(cg::reduce(whole, value, cg::plus<int>()) == sum, "reduce of a block");
    expect(cg::reduce(whole, value, cg::greater<int>()) == top, "greatest of a block");

    cg::thread_block_tile<32> tile = cg::tiled_partition<32>(whole);
    auto eight = cg::tiled_partition<8>(tile);
    expect(tile.meta_group_rank() == rank / 32 && tile.meta_group_size() == (size + 31) / 32, "tiles of a block");
    expect(eight.meta_group_rank() == rank % 32 / 8 && eight.meta_group_size() == 4, "tiles of a tile");
    unsigned int first = rank / 32 * 32, first8 = rank / 8 * 8;
    int before = 0, all = 0;
    for (unsigned int i = first; i < rank; i++) before += of(i);
    for (unsigned int i = first; i < first + 32; i++) all += of(i);
    expect(cg::reduce(tile, value, cg::plus<int>()) == all, "reduce of a tile");
    expect(cg::exclusive_scan(tile, value) == before, "exclusive scan of a tile");
    expect(cg::inclusive_scan(tile, value) == before + value, "inclusive scan of a tile");
    expect(eight.shfl(value, 3) == of(first8 + 3) && eight.shfl_xor(value, 5) == of(rank ^ 5), "shuffles of a tile");
    expect(eight.shfl_up(value, 2) == of(rank % 8 < 2 ? rank : rank - 2), "shuffle up");
    expect(eight.shfl_down(value, 2) == of(rank % 8 > 5 ? rank : rank + 2), "shuffle down");
    expect(tile.ballot(rank % 4 == 1) == 0x22222222u && tile.any(rank % 32 == 9) && !tile.all(rank % 32 == 9), "votes of a tile");
    expect(eight.match_any(rank % 3) != 0 && (eight.match_any(rank % 2) == (rank % 2 ? 0xaau : 0x55u)), "match of a tile");
    int same = 0;
    expect(eight.match_all(rank / 8, same) == 0xff && same == 1, "match of all");
    expect(eight.match_all(rank, same) == 0 && same == 0, "no match of all");

    // Parts of equal size, so that all lanes exchange as often.
    auto half = cg::binary_partition(tile, rank & 1);
    expect(half.size() == 16 && half.thread_rank() == rank % 32 / 2 && half.meta_group_rank() == (rank & 1), "halves of a tile");
    int odd_sum = 0, odd_before = 0;
    for (unsigned int i = first + (rank & 1); i < first + 32; i += 2) odd_sum += of(i), odd_before += i < rank ? of(i) : 0;
    expect(cg::reduce(half, value, cg::plus<int>()) == odd_sum, "reduce of a part");
    expect(cg::exclusive_scan(half, value, cg::plus<int>()) == odd_before, "scan of a part");
    expect(half.shfl_up(value, 1) == of(rank % 32 < 2 ? rank : rank - 2) && half.ballot(rank % 4 < 2) == 0x5555u, "exchange in a part");
    auto label = cg::labeled_partition(tile, (int)(rank % 4));
    expect(label.size() == 8 && label.meta_group_size() == 4 && label.meta_group_rank() == rank % 4, "labels");
    expect(label.thread_rank() == rank % 32 / 4 && label.shfl(value, 2) == of(first + rank % 4 + 8), "exchange by labels");
    auto four = cg::tiled_partition(whole, 4);
    expect(four.size() == 4 && four.meta_group_rank() == rank / 4 && four.shfl(value, 1) == of(rank / 4 * 4 + 1), "tiles of a size");
}

static void warps() {
    unsigned int lane = __lane_id();
    int all = 0;
    expect(__shfl_xor_sync(~0u, lane, 7, 32) == (lane ^ 7) && __shfl_sync(~0u, lane, 5, 16) == (lane / 16 * 16 + 5), "shuffles");
    expect(__match_any_sync(~0u, lane % 2) == (lane % 2 ? 0xaaaaaaaaaaaaaaaaull : 0x5555555555555555ull), "match");
    expect(__match_all_sync(~0u, 3, &all) == ~0ull && all == 1, "match of all lanes");
    expect(__reduce_add_sync(~0u, lane) == 64 * 63 / 2 && __reduce_max_sync(~0u, (int)lane) == 63, "reductions");
    expect(__reduce_min_sync(0xff00u, lane) == 8 && __ballot_sync(0xffu, 1) == 0xff, "masks");
}

// What the PTX manual says of a shuffle: `keep` are the bits of the lane that stay, `last` how far the source may lie.
static void shuffles_of_ptx() {
    unsigned int lane = __lane_id() % 32, base = __lane_id() - lane, value = __lane_id() * 3 + 1;
    const unsigned int limits[] = {0x1f, 0, 0x1c1f, 0x180f};
    for (unsigned int c : limits)
        for (unsigned int by : {1u, 5u, 31u}) {
            int keep = c >> 8 & 31, last = (int)(lane & keep) | ((int)(c & 31) & ~keep), l = (int)lane, b = (int)by;
            auto right = [&](unsigned int got, unsigned int inside, int from, bool in) {
                return inside == in && got == (base + (in ? from : l)) * 3 + 1;
            };
            unsigned int inside, got = ptx_up(value, by, c, &inside);
            expect(right(got, inside, l - b, l - b >= last), "shfl.up");
            got = ptx_down(value, by, c, &inside);
            expect(right(got, inside, l + b, l + b <= last), "shfl.down");
            got = ptx_bfly(value, by, c, &inside);
            expect(right(got, inside, l ^ b, (l ^ b) <= last), "shfl.bfly");
            int from = (l & keep) | (b & ~keep);
            got = ptx_idx(value, by, c, &inside);
            expect(right(got, inside, from, from <= last), "shfl.idx");
        }
    unsigned int all;
    expect(ptx_match(lane % 2) == (lane % 2 ? 0xaaaaaaaau : 0x55555555u), "match.any");
    expect(ptx_match_all(7, &all) == 0xffffffffu && all == 1 && ptx_match_all(lane, &all) == 0 && all == 0, "match.all");
    expect(ptx_redux_min(5 - (int)__lane_id()) == -58, "redux.min");
    expect(ptx_any(lane, 0xffffffffu) == 1 && ptx_any(lane, 0xff) == 0, "vote.any");
}
static void values_of_ptx() {
    expect(ptx_bfe(0xdeadbeef, 8, 12) == 0xdbe && ptx_bfe(0xdeadbeef, 28, 12) == 0xd && ptx_bfe(1, 0, 0) == 0, "bfe.u32");
    expect(ptx_bfe(0xdeadbeef, 40, 4) == 0 && ptx_bfe(0xdeadbeef, 0, 32) == 0xdeadbeef, "bfe.u32 at its ends");
    expect(ptx_bfe_signed(0xf0, 4, 4) == -1 && ptx_bfe_signed(0x70, 4, 4) == 7 && ptx_bfe_signed(-1, 3, 0) == 0, "bfe.s32");
    expect(ptx_bfe_signed((int)0x80000000, 28, 8) == -8, "bfe.s32 past the end fills with the sign");
    expect(ptx_bfi(0xab, 0xffffffff, 8, 8) == 0xffffabff && ptx_bfi(0xab, 0x1234, 40, 8) == 0x1234, "bfi");
    expect(ptx_lop3(0xf0f0f0f0, 0xcccccccc, 0xaaaaaaaa) == 0xe2e2e2e2, "lop3");
    expect(ptx_shr(-8, 1) == -4 && ptx_shr(-8, 40) == -1 && ptx_shr(8, 32) == 0, "shr.s32");
    const float nan = __builtin_nanf("");
    expect(ptx_compare(1, 2) == (1 | 4) && ptx_compare(2, 1) == (2 | 4) && ptx_compare(1, 1) == 2 && ptx_compare(nan, 1) == (2 | 8), "setp");
    expect(ptx_pack_bf16(1.0f, -2.0f) == 0x3f80c000 && ptx_pack_bf16(1.00390625f, 1.01171875f) == 0x3f803f82, "cvt.bf16x2, ties to even");
    expect(ptx_pack_half(1.0f, -2.0f) == 0x3c00c000 && ptx_fma_half(0x40003c00, 0x42003c00, 0x3c003c00) == 0x47004000, "halves");
    expect(ptx_swap(0x12345678) == 0x56781234 && ptx_tf32(1.0f + 0x1p-11f) == 0x3f802000 && ptx_tf32(1.0f) == 0x3f800000, "mov, tf32");
}

int main() {
    matrices<16, 16, 16, signed char, signed char, int>("16x16x16 int8");
    matrices<32, 8, 16, unsigned char, unsigned char, int>("32x8x16 uint8");
    matrices<8, 32, 16, signed char, signed char, int>("8x32x16 int8");
    matrices<16, 16, 16, float, float, float>("16x16x16 as halves are");
    matrices<32, 8, 16, float, float, float>("32x8x16 as halves are");
    matrices<8, 32, 16, float, float, float>("8x32x16 as halves are");
    matrices<16, 16, 8, wmma::precision::tf32, float, float>("16x16x8 tf32");
    matrices<8, 8, 4, double, double, double>("8x8x4 double");
    launch(128, groups);
    launch(96, groups);
    launch(64, warps);
    launch(64, shuffles_of_ptx);
    launch(1, values_of_ptx);
    std::puts("all right");
}
