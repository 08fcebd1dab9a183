// Where the elements of a view of (sequence, token, head, element) are. Only whole sequences can be further apart than 32 bits count:
// fewer registers hold all of it.
struct Steps {
    i64 sequence;
    i32 token, head, element, padding;
    __device__ i64 at(i64 s, i64 t, i64 h) const { return s * sequence + t * token + h * head; }
};
