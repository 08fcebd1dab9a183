# The CUDA language of CMake, as newer projects use it.
cmake_minimum_required(VERSION 3.21...3.28)
project(waves VERSION 1.2
        DESCRIPTION "CUDA waves"   # stays: CUDA is a word here
        LANGUAGES CXX HIP)

option(USE_CUDA "Build with CUDA" ON)
set(CMAKE_HIP_STANDARD 17)
set(CMAKE_HIP_STANDARD_REQUIRED ON)
if(NOT DEFINED CMAKE_HIP_ARCHITECTURES)
    set(CMAKE_HIP_ARCHITECTURES "gfx90a;gfx942;gfx1100")
endif()
set(CMAKE_HIP_FLAGS "${CMAKE_HIP_FLAGS} -O3 -Wall -fPIC")
string(APPEND CMAKE_HIP_FLAGS_DEBUG " -ggdb -gline-tables-only")

find_package(hip REQUIRED)
find_package(hipblas REQUIRED)
find_package(hipfft REQUIRED)
find_package(OpenMP)

set(SOURCES
    src/main.cpp
    src/kernels.cu # the hot part
    "src/more kernels.cu")
set_source_files_properties(src/kernels.cu "src/more kernels.cu" PROPERTIES LANGUAGE HIP)
add_executable(waves ${SOURCES})
target_link_libraries(waves PRIVATE
    hip::host
    roc::hipblas
    hip::hipfft
    OpenMP::OpenMP_CXX)
target_compile_features(waves PUBLIC cxx_std_17 hip_std_17)
target_compile_options(waves PRIVATE
    $<$<COMPILE_LANGUAGE:HIP>:-ffast-math>
    $<$<COMPILE_LANGUAGE:HIP>:>
    "$<$<AND:$<CONFIG:Debug>,$<COMPILE_LANGUAGE:HIP>>:-ggdb;-Rpass-analysis=kernel-resource-usage>"
    $<$<COMPILE_LANGUAGE:CXX>:-Wall>)
set_target_properties(waves PROPERTIES
    CUDA_SEPARABLE_COMPILATION ON
    HIP_ARCHITECTURES "gfx90a;gfx942;gfx1100"
    POSITION_INDEPENDENT_CODE ON)
set_property(TARGET waves PROPERTY HIP_STANDARD 17)
message(STATUS [[CUDA::cudart in a bracket stays]])
if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 11.2)
    message(FATAL_ERROR "CUDA ${CMAKE_CUDA_COMPILER_VERSION} is too old")
endif()
