// expect: WW0203@5, WW0203@6
struct Ballots { unsigned yes, no; };
__device__ Ballots tally(bool p) {
    Ballots b;
    b.yes = __ballot_sync(~0ull, p);
    b.no = __ballot_sync(~0ull, !p);
    return b;
}
