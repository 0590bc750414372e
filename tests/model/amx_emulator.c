/* Stands in for a processor with AMX on one without: LD_PRELOAD it. Each AMX instruction raises SIGILL here and is
   done in C, one thread's tiles apart from another's; an illegal configuration ends in SIGSEGV, as the processor's
   general protection fault does. Encodings and faults: Intel's Software Developer's Manual, volumes 1 (18) and 2. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>

#define ARCH_REQ_XCOMP_PERM 0x1023
enum { NONE, P66, F3, F2 };

struct config { uint8_t palette, start_row, reserved[14]; uint16_t colsb[16]; uint8_t rows[16]; };
static __thread struct config config;
static __thread uint8_t tiles[8][16][64];

/* llama.cpp asks the kernel for the tiles. */
long syscall(long number, ...) {
    static long (*real)(long, ...);
    long a[6];
    va_list more;
    va_start(more, number);
    for (int i = 0; i < 6; i++) a[i] = va_arg(more, long);
    va_end(more);
    if (number == SYS_arch_prctl && a[0] == ARCH_REQ_XCOMP_PERM) return 0;
    if (!real) real = dlsym(RTLD_NEXT, "syscall");
    return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

static int is_legal(const struct config *wanted) {
    static const uint8_t zeros[16];
    if (wanted->palette > 1 || memcmp(wanted->reserved, zeros, 14)) return 0;
    for (int tile = 0; tile < 16; tile++) {
        int rows = wanted->rows[tile], colsb = wanted->colsb[tile];
        if (rows > 16 || colsb > 64 || !rows != !colsb || (tile > 7 && rows)) return 0;
    }
    return 1;
}

static int32_t dot(const uint8_t *a, const uint8_t *b, int a_signed, int b_signed) {
    int32_t sum = 0;
    for (int i = 0; i < 4; i++)
        sum += (a_signed ? (int8_t)a[i] : a[i]) * (b_signed ? (int8_t)b[i] : b[i]);
    return sum;
}

static int multiply(int to, int a, int b, int a_signed, int b_signed) {
    if (!config.rows[to] || !config.rows[a] || !config.rows[b] || config.colsb[a] / 4 > config.rows[b]) return 0;
    for (int m = 0; m < config.rows[to]; m++)
        for (int k = 0; k < config.colsb[a] / 4; k++)
            for (int n = 0; n < config.colsb[to] / 4; n++)
                ((int32_t *)tiles[to][m])[n] += dot(&tiles[a][m][4 * k], &tiles[b][k][4 * n], a_signed, b_signed);
    return 1;
}

static void on_illegal(int number, siginfo_t *info, void *context) {
    static const int registers[16] = { REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                       REG_R8, REG_R9, REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15 };
    greg_t *gregs = ((ucontext_t *)context)->uc_mcontext.gregs;
    const uint8_t *code = (const uint8_t *)gregs[REG_RIP];
    int done = 0, length = 0;
    if (code[0] == 0xC4 && (code[1] & 31) == 2 && !(code[2] & 0x84)) { /* VEX.128.0F38.W0 */
        int prefix = code[2] & 3, second = ~(code[2] >> 3) & 15, mode = code[4] >> 6, reg = code[4] >> 3 & 7;
        int rm = code[4] & 7, base = -1, index = -1, shift = 0, next = 5;
        if (mode != 3) {
            int b = code[1] & 32 ? 0 : 8, x = code[1] & 64 ? 0 : 8;
            base = rm | b;
            if (rm == 4) {
                base = (code[next] & 7) | b, index = (code[next] >> 3 & 7) | x, shift = code[next] >> 6;
                if (index == 4) index = -1;
                next++;
            }
        }
        int disp_bytes = mode == 1 ? 1 : mode == 2 || (mode == 0 && (base & 7) == 5) ? 4 : 0;
        int64_t displacement = 0;
        if (mode != 3) {
            if (disp_bytes == 1) displacement = (int8_t)code[next];
            if (disp_bytes == 4) { int32_t d; memcpy(&d, code + next, 4); displacement = d; }
            next += disp_bytes;
        }
        length = next;
        uint8_t *address = (uint8_t *)displacement;
        if (mode == 0 && rm == 5) address += gregs[REG_RIP] + length; /* relative to the next instruction */
        else if (mode != 3 && !(mode == 0 && rm == 4 && (base & 7) == 5)) address += gregs[registers[base]];
        int64_t stride = index >= 0 ? gregs[registers[index]] << shift : 0;
        if (code[3] == 0x49 && mode != 3 && reg == 0 && prefix == NONE) {
            struct config wanted;
            memcpy(&wanted, address, sizeof wanted);
            if (!is_legal(&wanted)) { signal(SIGSEGV, SIG_DFL); raise(SIGSEGV); }
            config = wanted, done = 1;
            memset(tiles, 0, sizeof tiles);
        } else if (code[3] == 0x49 && mode != 3 && reg == 0 && prefix == P66) {
            memcpy(address, &config, sizeof config), done = 1;
        } else if (code[3] == 0x49 && code[4] == 0xC0 && prefix == NONE) {
            memset(&config, 0, sizeof config), done = 1;
        } else if (code[3] == 0x49 && mode == 3 && rm == 0 && prefix == F2 && config.rows[reg]) {
            memset(tiles[reg], 0, sizeof tiles[reg]), done = 1;
        } else if (code[3] == 0x4B && mode != 3 && rm == 4 && config.rows[reg] && prefix != NONE) {
            if (prefix != F3) memset(tiles[reg], 0, sizeof tiles[reg]);
            for (int row = 0; row < config.rows[reg]; row++, address += stride)
                if (prefix == F3) memcpy(address, tiles[reg][row], config.colsb[reg]);
                else memcpy(tiles[reg][row], address, config.colsb[reg]);
            done = 1;
        } else if (code[3] == 0x5E && mode == 3 && second < 8) {
            done = multiply(reg, rm, second, prefix == F2 || prefix == F3, prefix == F2 || prefix == P66);
        }
    }
    if (done) gregs[REG_RIP] += length;
    else signal(SIGILL, SIG_DFL); /* it comes again at once, and ends the process */
}

__attribute__((constructor)) static void begin(void) {
    struct sigaction action = { .sa_sigaction = on_illegal, .sa_flags = SA_SIGINFO | SA_NODEFER };
    sigaction(SIGILL, &action, NULL);
}
