// A failed assertion stops the kernel; the launch then reports an error. No include guard: NDEBUG may have changed.
// NVRTC has an assert of its own, which this leaves alone.
#ifdef WARPWAVE_AMD
#undef assert
#ifdef NDEBUG
#define assert(condition) ((void)0)
#else
#define assert(condition) ((condition) ? (void)0 : __trap())
#endif
#endif
