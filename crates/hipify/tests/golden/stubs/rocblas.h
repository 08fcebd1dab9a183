// Declarations after the documented signatures, only of what the golden files use, so that a wrong argument fails to compile.
#pragma once

typedef struct _rocblas_handle *rocblas_handle;
typedef int rocblas_int;
enum rocblas_status { rocblas_status_success = 0 };
typedef enum rocblas_datatype_ { rocblas_datatype_f16_r = 150 } rocblas_datatype;

rocblas_status rocblas_saxpy(rocblas_handle, rocblas_int n, const float *alpha, const float *x, rocblas_int incx, float *y,
                             rocblas_int incy);
