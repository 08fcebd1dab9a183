// Sine and cosine of a product that is not rounded before: of large angles the last digits count most.
__device__ inline void turn(f32 place, f32 frequency, f32 &sine, f32 &cosine) {
    const f32 angle = place * frequency, low = fmaf(place, frequency, -angle);
    const f32 quarters = rintf(angle * 0.636619772f);
    f32 x = fmaf(-quarters, 1.57079637f, angle);
    x = fmaf(-quarters, -4.37113883e-8f, x) + low;
    // Of large angles the first guess is one off at times.
    const f32 more = rintf(x * 0.636619772f);
    x = fmaf(-more, -4.37113883e-8f, fmaf(-more, 1.57079637f, x));
    const f32 s = x * x;
    const f32 near_sine = fmaf(fmaf(fmaf(fmaf(2.86567956e-6f, s, -1.98559923e-4f), s, 8.33338592e-3f), s, -1.66666672e-1f), s * x, x);
    const f32 near_cosine = fmaf(fmaf(fmaf(fmaf(2.44677067e-5f, s, -1.38877297e-3f), s, 4.16666567e-2f), s, -0.5f), s, 1.0f);
    const i32 quadrant = (i32)quarters + (i32)more;
    sine = quadrant & 1 ? near_cosine : near_sine;
    cosine = quadrant & 1 ? near_sine : near_cosine;
    if (quadrant & 2) sine = -sine;
    if ((quadrant + 1) & 2) cosine = -cosine;
}
// Of double precision a function of its own at AMD: its constants would spill scalar registers of the kernel.
#if defined(__AMDGCN__)
#define ALONE __attribute__((noinline))
#else
#define ALONE inline
#endif
static __device__ ALONE void turn(f64 place, f32 frequency, f64 &sine, f64 &cosine) { sincos(place * frequency, &sine, &cosine); }
