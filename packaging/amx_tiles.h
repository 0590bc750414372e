// Force-included in front of every C++ file of llama.cpp by lean_llama.cmake; does something only where AMX is compiled.
//
// GCC's intrinsics for AMX tiles (amxtileintrin.h, as of GCC 12) are inline assembler that does not say what it reads:
// _tile_loadconfig names 8 of its 64 bytes, _tile_loadd none at all. The optimiser may then leave out the stores before
// them. It does: llama.cpp's tile configuration reaches the processor unwritten, which answers with a fault. The same
// instructions follow here with everything they read and write.
#if defined(__AMX_TILE__) && defined(__GNUC__) && !defined(__clang__)
#include <immintrin.h>

struct office_chat_tile_config { char bytes[64]; };

#undef _tile_loadconfig
#define _tile_loadconfig(config) \
    __asm__ volatile("ldtilecfg\t%X0" ::"m"(*(const struct office_chat_tile_config *)(config)) : "memory")

#undef _tile_loadd
#define _tile_loadd(tile, base, stride) office_chat_tile_load("tileloadd", tile, base, stride)

#undef _tile_stream_loadd
#define _tile_stream_loadd(tile, base, stride) office_chat_tile_load("tileloaddt1", tile, base, stride)

#define office_chat_tile_load(instruction, tile, base, stride) \
    office_chat_tile_load_now(instruction, tile, base, stride)
#define office_chat_tile_load_now(instruction, tile, base, stride)                  \
    __asm__ volatile(instruction "\t(%0,%1,1), %%tmm" #tile ::"r"((const void *)(base)), \
                     "r"((long)(stride))                                            \
                     : "memory")
#endif
