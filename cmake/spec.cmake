find_package(tomlplusplus REQUIRED)
set(spec_links tomlplusplus::tomlplusplus)
