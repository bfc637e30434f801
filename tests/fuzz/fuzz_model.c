/* A model's text: parsed, described, and estimated: with no setup, and with
 * one that depends on the bytes. */
#include "fuzz.h"

enum { ERRORS = 4 };

static const char *const setups[] = {
    "{}",
    "{\"zero\": 3, \"gpus\": 64}",
    "{\"tp\": 2, \"pp\": 2, \"gpus\": 8, \"grad_accum\": 4}",
    "{\"framework\": \"fsdp\", \"gpus\": 8, \"recompute\": \"full\"}",
    "{\"lora_rank\": 8, \"gpu\": \"rtx-4090\"}",
    "{\"framework\": \"torchtitan\", \"gpus\": 8, \"micro_batch\": 2}",
    "{\"attention\": \"eager\", \"precision\": \"fp32\", \"gpu\": \"v100\"}",
    "{\"framework\": \"megatron\", \"recompute\": \"selective\"}",
};

static bool discard(void *ctx, const char *text, size_t len)
{
    (void)ctx;
    (void)text;
    (void)len;
    return true;
}

static void describe(const memplan_model *model)
{
    for (int format = 0; format < 4; format++) {
        const memplan_style style = { (memplan_format)format, false, 60 };
        fuzz_require(memplan_model_write(model, &style, discard, NULL, NULL)
                         == MEMPLAN_OK,
                     "a model is not written");
    }
    fuzz_require(memplan_model_name(model) != NULL, "a model without a name");
}

static void estimate(const memplan_model *model, const char *text, bool quiet)
{
    memplan_error slot[ERRORS];
    memplan_errors errs = { slot, ERRORS, 0 };
    memplan_setup *setup = NULL;
    memplan_report *report = NULL;
    size_t len = 0;
    while (text[len])
        len++;
    fuzz_require(memplan_setup_new(&setup, NULL, NULL) == MEMPLAN_OK
                     && memplan_setup_parse(setup, text, len, NULL)
                            == MEMPLAN_OK,
                 "one of the target's own setups is refused");
    memplan_status status =
        memplan_estimate(&report, model, setup, NULL, &errs);
    fuzz_status(status, &errs);
    if (report)
        fuzz_report(report, quiet);
    memplan_report_free(report);

    report = NULL;
    errs.count = 0;
    status = memplan_compute(&report, model, setup, NULL, &errs);
    fuzz_status(status, &errs);
    if (report)
        fuzz_report(report, quiet);
    memplan_report_free(report);
    memplan_setup_free(setup);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    memplan_error slot[ERRORS];
    memplan_errors errs = { slot, ERRORS, 0 };
    memplan_model *model = NULL;
    memplan_status status = memplan_model_parse(&model, (const char *)data,
                                                size, "fuzz", NULL, &errs);
    fuzz_status(status, &errs);
    fuzz_require((status == MEMPLAN_OK) == (model != NULL),
                 "a model and a failure");
    if (!model)
        return 0;
    bool quiet = fuzz_is_quiet(data, size);
    describe(model);
    size_t sum = 0;
    for (size_t i = 0; i < size; i++)
        sum += data[i];
    estimate(model, setups[0], quiet);
    estimate(model, setups[sum % (sizeof(setups) / sizeof(setups[0]))], quiet);
    memplan_model_free(model);
    return 0;
}
