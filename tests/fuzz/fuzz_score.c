/* Measured runs: read, counted, and written in every way. */
#include "fuzz.h"

enum { ERRORS = 4 };

static bool take(void *ctx, const char *text, size_t len)
{
    (void)text;
    *(size_t *)ctx += len;
    return true;
}

static void write_all(const memplan_score *score)
{
    static const char *const by[] = { "group", "metric", "zero", "lora" };
    for (int format = 0; format < 4; format++) {
        size_t n = 0;
        const memplan_style style = { (memplan_format)format, false, 0 };
        fuzz_require(
            memplan_score_write(score, by[format], &style, take, &n, NULL)
                == MEMPLAN_OK,
            "a score is not written");
        fuzz_require(n > 0, "nothing is written");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    memplan_error slot[ERRORS];
    memplan_errors errs = { slot, ERRORS, 0 };
    memplan_score *score = NULL;
    bool held = false;
    if (memplan_score_new(&score, NULL, NULL) != MEMPLAN_OK)
        return 0;
    fuzz_status(memplan_score_parse(score, (const char *)data, size, &errs),
                &errs);
    fuzz_require(memplan_score_held(&held, score, "2%", NULL) == MEMPLAN_OK,
                 "a limit is refused");
    write_all(score);
    memplan_score_free(score);
    return 0;
}
