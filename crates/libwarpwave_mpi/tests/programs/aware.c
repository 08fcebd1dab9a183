/* Stands for an MPI that takes device addresses: true where the device's memory is the host's, as the virtual GPU's is. */
int MPIX_Query_rocm_support(void) {
    return 1;
}
