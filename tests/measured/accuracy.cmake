# Compares the generated part of docs/accuracy.md with what the program says;
# with BLESS writes it.
#   cmake -DPROGRAM= -DPAGE= -DROWS= [-DBLESS=ON] -P
cmake_minimum_required(VERSION 3.24)
set(marker "<!-- from here on: memplan score --format markdown -->\n")
execute_process(
    COMMAND "${PROGRAM}" score --format markdown
            "${ROWS}/memory.jsonl" "${ROWS}/memory-zero.jsonl"
            "${ROWS}/memory-gpu.jsonl" "${ROWS}/memory-drawn.jsonl"
            "${ROWS}/memory-fms.jsonl" "${ROWS}/memory-unseen.jsonl"
            "${ROWS}/fits.jsonl" "${ROWS}/throughput.jsonl"
            "${ROWS}/throughput-vtrain.jsonl" "${ROWS}/throughput-unseen.jsonl"
            "${ROWS}/peers.jsonl" "${ROWS}/remarks.jsonl"
    OUTPUT_VARIABLE said COMMAND_ERROR_IS_FATAL ANY)
file(READ "${PAGE}" page)
string(FIND "${page}" "${marker}" at)
if(at EQUAL -1)
    message(FATAL_ERROR "${PAGE} has lost its marker: ${marker}")
endif()
string(LENGTH "${marker}" length)
math(EXPR at "${at} + ${length}")
string(SUBSTRING "${page}" 0 ${at} head)
if(page STREQUAL "${head}\n${said}")
    return()
endif()
if(NOT BLESS)
    message(FATAL_ERROR "${PAGE} is not what memplan score says now: "
            "cmake --build build --target bless, and review the difference")
endif()
file(WRITE "${PAGE}" "${head}\n${said}")
message(STATUS "${PAGE}: written")
