# The backend for NVIDIA GPUs: a library of its own beside the program, built where CUDA's compiler is found and loaded when a run asks for it.
# ECHELON_CUDA: AUTO (built if it can be) | ON (an error if it cannot) | OFF.
set(ECHELON_CUDA AUTO CACHE STRING "build the backend for NVIDIA GPUs: AUTO, ON or OFF")
# The chips that it is compiled for: A100, H100 and H200, B200, and through PTX what comes after them.
set(ECHELON_CUDA_ARCHITECTURES "80-real;90a-real;100" CACHE STRING "as CMAKE_CUDA_ARCHITECTURES")

if(ECHELON_CUDA)
  find_program(ECHELON_NVCC nvcc HINTS $ENV{CUDA_HOME}/bin $ENV{CUDA_PATH}/bin /usr/local/cuda/bin)
  if(ECHELON_NVCC)
    set(CMAKE_CUDA_COMPILER ${ECHELON_NVCC})
    set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
    set(CMAKE_CUDA_ARCHITECTURES ${ECHELON_CUDA_ARCHITECTURES})
    enable_language(CUDA)
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20") # which CMake 3.25 does not know of nvcc
    set(CMAKE_CUDA_STANDARD 20)
    set(CMAKE_CUDA_EXTENSIONS OFF)
    if(CCACHE)
      set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
    endif()
    find_package(CUDAToolkit REQUIRED)
    find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
    find_library(NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR} ${CUDAToolkit_LIBRARY_ROOT}/lib64)
    # cuDNN's attention is built in where cuDNN's headers are found, and its frontend's, which scripts/cudnn_frontend fetches; a run loads cuDNN itself if it is there.
    find_path(CUDNN_INCLUDE_DIR cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
    file(GLOB fetched_frontend ${CMAKE_SOURCE_DIR}/build/cudnn_frontend-*/include)
    find_path(CUDNN_FRONTEND_INCLUDE_DIR cudnn_frontend.h HINTS ${fetched_frontend})
  endif()
  if(ECHELON_NVCC AND NCCL_INCLUDE_DIR AND NCCL_LIBRARY)
    set(ECHELON_HAS_CUDA ON)
  elseif(ECHELON_CUDA STREQUAL "ON")
    message(FATAL_ERROR "ECHELON_CUDA = ON, but CUDA's compiler nvcc, or NCCL, is not found; nearest: CUDA_HOME=/path/to/cuda cmake ...")
  else()
    message(STATUS "CUDA's compiler nvcc, or NCCL, is not found: runs will be on processors")
  endif()
endif()

# echelon_plugin(NAME USES folders...): libechelon_NAME.so out of every .cpp and .cu below src/NAME. What it uses of other folders is the program's own, in
# which it is loaded.
function(echelon_plugin name)
  cmake_parse_arguments(PLUGIN "" "" "USES" ${ARGN})
  if(NOT ECHELON_HAS_CUDA)
    return()
  endif()
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${name}/*.cpp ${CMAKE_SOURCE_DIR}/src/${name}/*.cu)
  if(CUDNN_INCLUDE_DIR AND CUDNN_FRONTEND_INCLUDE_DIR)
    list(FILTER sources EXCLUDE REGEX "/no_cudnn_[a-z_]*\\.cpp$")
    set_source_files_properties(
      ${CMAKE_SOURCE_DIR}/src/cuda/ops/cudnn_attention.cpp PROPERTIES COMPILE_DEFINITIONS "NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING;CUDNN_FRONTEND_SKIP_JSON_LIB"
                                                                      COMPILE_OPTIONS "-isystem;${CUDNN_INCLUDE_DIR};-isystem;${CUDNN_FRONTEND_INCLUDE_DIR}")
  else()
    list(FILTER sources EXCLUDE REGEX "/cudnn_[a-z_]*\\.cpp$")
  endif()
  add_library(echelon_${name} MODULE ${sources})
  target_include_directories(echelon_${name} PRIVATE ${CMAKE_SOURCE_DIR}/src)
  target_include_directories(echelon_${name} SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS} ${NCCL_INCLUDE_DIR})
  # FMA contraction is the kernels' own business: nvcc's default. Its host code is compiled like ours, but for warnings about what nvcc makes of it.
  target_compile_options(echelon_${name} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr -Werror=all-warnings -Xcompiler=-Wall>)
  foreach(folder ${PLUGIN_USES})
    target_include_directories(echelon_${name} SYSTEM PRIVATE $<TARGET_PROPERTY:echelon_${folder},INTERFACE_SYSTEM_INCLUDE_DIRECTORIES>)
    add_dependencies(echelon_${name} echelon_${folder})
  endforeach()
  get_target_property(flags echelon_flags INTERFACE_COMPILE_OPTIONS)
  foreach(flag ${flags})
    target_compile_options(echelon_${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:${flag}>)
  endforeach()
  set_target_properties(echelon_${name} PROPERTIES PREFIX lib OUTPUT_NAME echelon_${name} LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR} CXX_VISIBILITY_PRESET hidden
                        CUDA_VISIBILITY_PRESET hidden POSITION_INDEPENDENT_CODE ON)
  target_link_libraries(echelon_${name} PRIVATE CUDA::cudart_static CUDA::cublasLt ${NCCL_LIBRARY} fmt::fmt ${CMAKE_DL_LIBS})
endfunction()

# plugin_host(PROGRAM): a program that plug-ins can be loaded into. They use what is in it, also of folders that it does not use itself.
function(plugin_host program)
  set_target_properties(${program} PROPERTIES ENABLE_EXPORTS ON)
  set(archives)
  foreach(folder ops comm spec tensor base)
    list(APPEND archives $<TARGET_FILE:echelon_${folder}>)
  endforeach()
  target_link_libraries(${program} PRIVATE -Wl,--whole-archive ${archives} -Wl,--no-whole-archive)
endfunction()
