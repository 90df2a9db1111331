# Backends are libraries of their own beside the program, built where what they need is found (cuda.cmake) and loaded when a run asks for one.

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
    list(FILTER sources EXCLUDE REGEX "/cudnn_attention\\.cpp$")
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
  target_link_libraries(echelon_${name} PRIVATE CUDA::cudart CUDA::cublasLt fmt::fmt ${CMAKE_DL_LIBS})
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
