# The kernels of a build for this PC, one module each, fastest first: all of its instructions; those without AMX where it
# has AMX; AVX2; SSE4.2. appliance/engine/kernels.py says which of them is used, and what happens when one fails.
# Included by ggml/src/CMakeLists.txt in place of its list for every CPU: see llama_wheel.py.
function(office_chat_kernels name)
    set(ARCH_FLAGS ${ARGN})
    ggml_add_cpu_backend_variant(${name})
endfunction()

if(GGML_SYSTEM_ARCH STREQUAL "x86")
    # Asked of the compiler: in a container /proc/cpuinfo may name no instructions.
    execute_process(
        COMMAND ${CMAKE_CXX_COMPILER} -march=native -dM -E -x c++ /dev/null
        OUTPUT_VARIABLE native_macros
        COMMAND_ERROR_IS_FATAL ANY)
    office_chat_kernels(native -march=native)
    if(native_macros MATCHES "__AMX_TILE__")
        office_chat_kernels(noamx -march=native -mno-amx-tile -mno-amx-int8 -mno-amx-bf16)
    endif()
    if(native_macros MATCHES "__AVX2__")
        ggml_add_cpu_backend_variant(haswell SSE42 AVX F16C FMA AVX2 BMI2)
    endif()
    if(native_macros MATCHES "__SSE4_2__")
        ggml_add_cpu_backend_variant(sse42 SSE42)
    else()
        ggml_add_cpu_backend_variant(x64)
    endif()
else()
    set(GGML_NATIVE ON)
    ggml_add_cpu_backend_variant_impl(native)
    set(GGML_NATIVE OFF)
    if(GGML_SYSTEM_ARCH STREQUAL "ARM")
        ggml_add_cpu_backend_variant(armv8.0_1)
    endif()
endif()
