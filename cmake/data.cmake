# PCRE2 splits text by the patterns that our own scanner does not run, xxHash orders files and keys caches, nlohmann-json reads tokenizer.json.
find_package(PkgConfig REQUIRED)
pkg_check_modules(pcre2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET libxxhash)
find_package(nlohmann_json REQUIRED)
set(data_links PkgConfig::pcre2 PkgConfig::xxhash nlohmann_json::nlohmann_json Threads::Threads)

# What is known of each code point becomes a text in the binary (data/tokenizer/unicode/character_tables.h).
set(character_file ${CMAKE_SOURCE_DIR}/src/data/tokenizer/unicode/tables.txt)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${character_file})
file(READ ${character_file} character_text)
configure_file(${CMAKE_SOURCE_DIR}/cmake/character_tables_text.cpp.in ${CMAKE_BINARY_DIR}/generated/character_tables_text.cpp @ONLY)
list(APPEND sources ${CMAKE_BINARY_DIR}/generated/character_tables_text.cpp)
# Clang warns of literals above 64 KiB.
set_source_files_properties(${CMAKE_BINARY_DIR}/generated/character_tables_text.cpp PROPERTIES COMPILE_OPTIONS -Wno-overlength-strings)
