# PCRE2 splits and utf8proc normalizes text as the published tokenizers do, xxHash orders files and keys caches, nlohmann-json reads tokenizer.json.
find_package(PkgConfig REQUIRED)
pkg_check_modules(pcre2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET libxxhash)
find_package(nlohmann_json REQUIRED)
pkg_check_modules(utf8proc REQUIRED IMPORTED_TARGET libutf8proc)
set(data_links PkgConfig::utf8proc PkgConfig::pcre2 PkgConfig::xxhash nlohmann_json::nlohmann_json Threads::Threads)
