/* A module of kernels with a fault of its own, around a real one: REAL is the path of that, FAULT what is wrong.
   The layouts are the beginnings of ggml's (ggml-backend-impl.h, ggml-impl.h, ggml.h), as far as they are used. */
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ON_LOAD = 1, AT_FIRST_EVALUATION, WRONG_NUMBERS, AT_64_ROWS, ON_ANY_OTHER_MODEL, WHEN_TOLD };

struct tensor { int type; void *buffer; int64_t ne[4]; size_t nb[4]; int op; int32_t op_params[16]; int32_t flags;
                struct tensor *src[10]; struct tensor *view_src; size_t view_offs; float *data; };
struct graph { int size, n_nodes, n_leafs; struct tensor **nodes; };
struct backend { void *guid; void *before[12]; int (*compute)(struct backend *, struct graph *); };
struct device { void *before[5]; struct backend *(*init_backend)(struct device *, const char *); };
struct registration { int version; void *name, *count; struct device *(*device)(struct registration *, size_t); };

static int (*real_compute)(struct backend *, struct graph *);
static struct backend *(*real_init)(struct device *, const char *);

static int compute(struct backend *backend, struct graph *graph) {
    /* The first node looks up the embedding: (n_embd, rows). The trial's model has 256 columns. */
    int64_t n_embd = graph->nodes[0]->ne[0], rows = graph->nodes[0]->ne[1];
    int dies = FAULT == AT_FIRST_EVALUATION || (FAULT == AT_64_ROWS && rows == 64)
        || (FAULT == ON_ANY_OTHER_MODEL && n_embd != 256)
        || (FAULT == WHEN_TOLD && n_embd != 256 && getenv("FAULT_WHEN") && unlink(getenv("FAULT_WHEN")) == 0);
    if (dies) raise(SIGSEGV);
    int status = real_compute(backend, graph);
    struct tensor *last = graph->nodes[graph->n_nodes - 1];
    if (FAULT == WRONG_NUMBERS)
        for (int64_t i = 0; i < last->ne[0] * last->ne[1]; i += 7) last->data[i] += 1.5f;
    return status;
}

static struct backend *init_backend(struct device *device, const char *params) {
    struct backend *backend = real_init(device, params);
    real_compute = backend->compute;
    backend->compute = compute;
    return backend;
}

__attribute__((constructor)) static void loaded(void) { if (FAULT == ON_LOAD) raise(SIGILL); }

int ggml_backend_score(void) { return 1; }

void *ggml_backend_init(void) {
    void *module = dlopen(REAL, RTLD_NOW);
    if (!module) { fprintf(stderr, "%s\n", dlerror()); return NULL; }
    struct registration *registration = ((struct registration *(*)(void))dlsym(module, "ggml_backend_init"))();
    struct device *device = registration->device(registration, 0);
    real_init = device->init_backend;
    device->init_backend = init_backend;
    return registration;
}
