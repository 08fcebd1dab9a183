# The CUDA language of CMake, as newer projects use it.
cmake_minimum_required(VERSION 3.18...3.28)
project(waves VERSION 1.2
        DESCRIPTION "CUDA waves"   # stays: CUDA is a word here
        LANGUAGES CXX CUDA)

option(USE_CUDA "Build with CUDA" ON)
set(CMAKE_CUDA_STANDARD 17)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 70 80 90)
endif()
set(CMAKE_CUDA_FLAGS "${CMAKE_CUDA_FLAGS} -O3 --expt-relaxed-constexpr -Xcompiler -Wall,-fPIC")
string(APPEND CMAKE_CUDA_FLAGS_DEBUG " -G -lineinfo")

find_package(CUDAToolkit 11.8 REQUIRED COMPONENTS cublas)
find_package(OpenMP)

set(SOURCES
    src/main.cpp
    src/kernels.cu # the hot part
    "src/more kernels.cu")
add_executable(waves ${SOURCES})
target_link_libraries(waves PRIVATE
    CUDA::cudart
    CUDA::cublas
    CUDA::cufft CUDA::cuda_driver
    OpenMP::OpenMP_CXX)
target_compile_features(waves PUBLIC cxx_std_17 cuda_std_17)
target_compile_options(waves PRIVATE
    $<$<COMPILE_LANGUAGE:CUDA>:--use_fast_math>
    $<$<COMPILE_LANGUAGE:CUDA>:--extended-lambda>
    "$<$<AND:$<CONFIG:Debug>,$<COMPILE_LANGUAGE:CUDA>>:-G;-Xptxas;-v>"
    $<$<COMPILE_LANGUAGE:CXX>:-Wall>)
set_target_properties(waves PROPERTIES
    CUDA_SEPARABLE_COMPILATION ON
    CUDA_ARCHITECTURES "70;80"
    POSITION_INDEPENDENT_CODE ON)
set_property(TARGET waves PROPERTY CUDA_STANDARD 17)
message(STATUS [[CUDA::cudart in a bracket stays]])
if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 11.2)
    message(FATAL_ERROR "CUDA ${CMAKE_CUDA_COMPILER_VERSION} is too old")
endif()
