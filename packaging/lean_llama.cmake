# Included by CMake when llama.cpp's own project begins (CMAKE_PROJECT_llama.cpp_INCLUDE). llama-cpp-python forces
# LLAMA_BUILD_COMMON on in the cache; a normal variable of the same name wins over the cache. Without "common",
# none of what hangs on it is compiled either.
set(LLAMA_BUILD_COMMON OFF)
# The compiler's own AMX intrinsics leave out what the instructions read from memory: amx_tiles.h.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    string(APPEND CMAKE_CXX_FLAGS " -include \"${CMAKE_CURRENT_LIST_DIR}/amx_tiles.h\"")
endif()
