/*
 * The views of a report, one file each, and the few words that they share.
 */
#ifndef MEMPLAN_REPORT_REPORT_VIEW_H
#define MEMPLAN_REPORT_REPORT_VIEW_H

#include "base/unit.h"
#include "plan/report_data.h"
#include "report/out.h"

/* The answer in o's format, with what would make it fit. */
void report_write_summary(struct out *o, const struct memplan_report *report,
                          const struct answers *answers);
void report_write_text(struct out *o, const struct memplan_report *report,
                       const struct answers *answers);
void report_write_json(struct out *o, const struct memplan_report *report,
                       const struct answers *answers);
void report_write_csv(struct out *o, const struct memplan_report *report,
                      const struct answers *answers);

/* Lives through the step again; E_UNSUPPORTED where no trace can be made. */
memplan_status report_write_trace(struct out *o,
                                  const struct memplan_report *report,
                                  bool first, memplan_errors *errs);

/* The blocks of report_write_text about FLOPs, time and cost. */
void text_compute_section(struct out *o, const struct memplan_report *report,
                          const struct law_answers *laws);
void text_compute_report(struct out *o, const struct memplan_report *report,
                         const struct law_answers *laws);
void text_assumptions(struct out *o, const struct memplan_report *report);

void explain_write(struct out *o, const struct memplan_report *report,
                   const struct explanation *x);

/* "52.1%" of 0.521 */
const char *text_percent(char buf[UNIT_TEXT_MAX], double fraction);

/* "peak in backward of layer 3, at down_proj, on stage 0 of 4" */
void text_peak(char *text, size_t size, const struct memplan_report *report);
/* Appends ", on stage 0 of 4", where there are several. */
void text_worst_stage(char *text, size_t size,
                      const struct memplan_report *report);

/* Whether the stage's peak_layer means something. */
bool peak_is_in_layer(const struct memplan_report *report,
                      const struct stage_result *stage);

/* "chinchilla" */

#endif
