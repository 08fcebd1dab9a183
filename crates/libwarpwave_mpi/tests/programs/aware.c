/* Mocks a GPU-aware MPI library: correct for the virtual GPU, whose memory the host can access. */
int MPIX_Query_rocm_support(void) {
    return 1;
}
