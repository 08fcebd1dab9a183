// expect: safe
#include <cstdint>
#include <vector>
// A reference on the host, which packs lanes of a vector register.
uint32_t pack(const std::vector<bool> &v) {
    uint32_t out = 0;
    for (int lane = 0; lane < 32; ++lane)
        if (v[lane]) out |= 1u << lane;
    return out;
}
int words_for(int n) { return (n + 31) / 32; }
size_t align(size_t bytes) { return (bytes + 31) & ~size_t(31); }
