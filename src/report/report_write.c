/*
 * Owns the public call that writes a report: which view, which format.
 */
#include "report/report_view.h"

#include "base/diag.h"

#include "base/banned.h"

static memplan_status write_explanation(struct out *o,
                                        const struct memplan_report *report,
                                        memplan_errors *errs)
{
    struct arena a;
    arena_init(&a, report->arena.alloc.resize ? &report->arena.alloc : NULL);
    struct explanation x = { .arena = &a };
    memplan_status status = MEMPLAN_OK;
    if (report_explain(report, &x)) {
        explain_write(o, report, &x);
        status = out_close(o, errs);
    } else {
        struct diag d;
        diag_init(&d, errs);
        status = diag_nomem(&d);
    }
    arena_release(&a);
    return status;
}

void report_write_summary(struct out *o, const struct memplan_report *report,
                          const struct answers *answers)
{
    switch (o->format) {
    case MEMPLAN_FORMAT_TABLE:
    case MEMPLAN_FORMAT_MARKDOWN: report_write_text(o, report, answers); break;
    case MEMPLAN_FORMAT_JSON: report_write_json(o, report, answers); break;
    case MEMPLAN_FORMAT_CSV: report_write_csv(o, report, answers); break;
    case MEMPLAN_FORMAT_SVG: out_no_picture(o); break;
    }
}

static memplan_status write_answer(struct out *o,
                                   const struct memplan_report *report,
                                   memplan_errors *errs)
{
    struct answers answers;
    if (!report_changes(&answers.changes, report)) {
        struct diag d;
        diag_init(&d, errs);
        return diag_nomem(&d);
    }
    report_laws(&answers.laws, report);
    report_write_summary(o, report, &answers);
    return out_close(o, errs);
}

memplan_status memplan_report_write(const struct memplan_report *report,
                                    memplan_view view,
                                    const memplan_style *style,
                                    memplan_write_fn *write, void *ctx,
                                    memplan_errors *errs)
{
    struct out o;
    if (!report || !write || report->kind == REPORT_NONE) {
        struct diag d;
        diag_init(&d, errs);
        diag_add(&d, MEMPLAN_E_ARG, "there is no report to write");
        return MEMPLAN_E_ARG;
    }
    out_init(&o, style, write, ctx);
    if (view == MEMPLAN_VIEW_EXPLAIN)
        return write_explanation(&o, report, errs);
    if (view == MEMPLAN_VIEW_TRACE || view == MEMPLAN_VIEW_TRACE_FIRST)
        return report_write_trace(&o, report, view == MEMPLAN_VIEW_TRACE_FIRST,
                                  errs);
    return write_answer(&o, report, errs);
}
