/* Bytes as the text of another program's configuration, of every dialect. */
#include "fuzz.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const dialects[] = { "deepspeed",     "hostfile",
                                            "training-args", "accelerate",
                                            "megatron-args", "torchtitan",
                                            "torchrun" };
    const char *text = size > 0 ? (const char *)data : "";
    for (size_t i = 0; i < sizeof(dialects) / sizeof(dialects[0]); i++) {
        memplan_error slot[4];
        memplan_errors errs = { slot, 4, 0 };
        memplan_setup *setup = NULL;
        fuzz_require(memplan_setup_new(&setup, NULL, NULL) == MEMPLAN_OK,
                     "no memory");
        fuzz_status(
            memplan_setup_import(setup, dialects[i], text, size, "f", &errs),
            &errs);
        const char *next = NULL;
        const char *named = memplan_setup_pending(setup, &next);
        fuzz_require(named == NULL || (next != NULL && strlen(named) < 4096),
                     "a file of no dialect");
        memplan_setup_free(setup);
    }
    return 0;
}
