// Declarations after the documented signatures, only of what the golden files use, so that a wrong argument fails to compile.
#pragma once

typedef struct _rocsparse_handle *rocsparse_handle;
typedef struct _rocsparse_mat_descr *rocsparse_mat_descr;
typedef struct _rocsparse_mat_info *rocsparse_mat_info;
typedef int rocsparse_int;
enum rocsparse_status { rocsparse_status_success = 0 };
enum rocsparse_analysis_policy { rocsparse_analysis_policy_force = 1 };
enum rocsparse_solve_policy { rocsparse_solve_policy_auto = 0 };

rocsparse_status rocsparse_scsrilu0_buffer_size(rocsparse_handle, rocsparse_int m, rocsparse_int nnz, rocsparse_mat_descr,
                                                const float *values, const rocsparse_int *rows, const rocsparse_int *columns,
                                                rocsparse_mat_info, size_t *size);
rocsparse_status rocsparse_scsrilu0_analysis(rocsparse_handle, rocsparse_int m, rocsparse_int nnz, rocsparse_mat_descr,
                                             const float *values, const rocsparse_int *rows, const rocsparse_int *columns,
                                             rocsparse_mat_info, rocsparse_analysis_policy, rocsparse_solve_policy, void *buffer);
rocsparse_status rocsparse_scsrilu0(rocsparse_handle, rocsparse_int m, rocsparse_int nnz, rocsparse_mat_descr, float *values,
                                    const rocsparse_int *rows, const rocsparse_int *columns, rocsparse_mat_info,
                                    rocsparse_solve_policy, void *buffer);
