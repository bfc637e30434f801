/* The picture of a trace. */
#ifndef MEMPLAN_REPORT_REPORT_SVG_H
#define MEMPLAN_REPORT_REPORT_SVG_H

#include "fold/trace.h"
#include "report/report_view.h"

/* Writes an SVG 1.1 document of a trace of the report's fullest stage. False
 * when the arena has no memory; nothing is written then. */
bool report_svg_trace(struct out *o, const struct memplan_report *report,
                      const struct trace *t, struct arena *a);

#endif
