# Warnings are errors. The floating-point contract is pinned, so that the reference and the engine round alike.
add_library(echelon_flags INTERFACE)
target_compile_options(echelon_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow$<$<BOOL:$<TARGET_PROPERTY:UNITY_BUILD>>:=local> -Wconversion -Wno-sign-conversion -Wswitch -Werror -ffp-contract=off -fno-math-errno)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU) # GCC 12 reports both of these falsely inside std::string and fmt
  target_compile_options(echelon_flags INTERFACE -Wno-restrict -Wno-stringop-overflow)
endif()

# Sanitizers change the flow that GCC reasons about: it then reports the standard library's <regex> and <functional>.
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_FLAGS MATCHES "-fsanitize")
  target_compile_options(echelon_flags INTERFACE -Wno-maybe-uninitialized)
endif()
