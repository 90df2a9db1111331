# nlohmann-json reads the JSON of foreign files; its headers bring overloads with them that other files of the folder must not find.
find_package(nlohmann_json REQUIRED)
set(base_links nlohmann_json::nlohmann_json)
set(base_apart ${CMAKE_SOURCE_DIR}/src/base/bounded_json.cpp)
