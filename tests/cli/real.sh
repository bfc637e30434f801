#!/bin/sh
# The program as a process: what a host inside a test cannot show.
#   real.sh PROGRAM
set -u
program=$1
here=$(mktemp -d) || exit 1
trap 'rm -rf "$here"' EXIT
cd "$here" || exit 1
failures=0

# expect STATUS WHAT GOT
expect() {
    got=$3
    if [ "$got" -ne "$1" ]; then
        echo "$2: status $got, should be $1"
        cat err 2>/dev/null
        failures=$((failures + 1))
    fi
}
# Status 2 and more: a message, and nothing on standard output.
silent() {
    if [ -s out ] || ! [ -s err ]; then
        echo "$1: standard output must be empty, standard error must not"
        failures=$((failures + 1))
    fi
}

cat > tiny.json <<'JSON'
{
  "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
  "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 256,
  "max_position_embeddings": 128
}
JSON

"$program" llama-7b --zero 3 --gpus 64 >out 2>err
expect 0 'estimate' $?

if [ -c /dev/full ]; then
    "$program" llama-7b >/dev/full 2>err
    expect 4 'a full disk' $?
    "$program" --help >/dev/full 2>err
    expect 4 'a full disk, help' $?
fi
"$program" llama-7b >&- 2>err
expect 4 'closed standard output' $?
"$program" tiny.json 2>&- >out
expect 0 'closed standard error' $?

"$program" - <tiny.json >out 2>err
expect 0 'a model on standard input' $?
"$program" - <&- >out 2>err
expect 4 'closed standard input' $?
silent 'closed standard input'
"$program" - </dev/null >out 2>err
expect 3 'empty standard input' $?
silent 'empty standard input'

mkdir folder
"$program" folder >out 2>err
expect 4 'a folder' $?
silent 'a folder'
mkdir llama-7b
"$program" llama-7b >out 2>err
expect 0 'a folder does not hide a model of its name' $?

"$program" "$(printf '%0500d' 0)" >out 2>err
expect 3 'a name longer than any file has' $?
silent 'a name longer than any file has'

# Unreadable for root too, where the kernel has it.
if [ -e /proc/self/mem ]; then
    "$program" /proc/self/mem >out 2>err
    expect 4 'a file that cannot be read' $?
    silent 'a file that cannot be read'
fi
if [ "$(id -u)" -ne 0 ]; then
    cp tiny.json secret.json && chmod 000 secret.json
    "$program" secret.json >out 2>err
    expect 4 'a file without permission' $?
    silent 'a file without permission'
fi

# A path is bytes.
odd=$(printf 'caf\351.json')
if cp tiny.json "$odd" 2>/dev/null; then
    "$program" "$odd" >out 2>err
    expect 0 'a path that is not UTF-8' $?
    echo '{' >"$odd"
    "$program" "$odd" >out 2>err
    expect 3 'a bad file whose path is not UTF-8' $?
    silent 'a bad file whose path is not UTF-8'
fi

# A reader that went away ends the program silently, as any filter.
{
    sleep 0.3
    "$program" help estimate 2>err
    echo $? >status
} | true
expect 141 'a closed pipe' "$(cat status)"

# What bash completes, where there is bash.
if command -v bash >/dev/null; then
    "$program" completion bash >complete.bash
    completed=$(bash -c '. ./complete.bash
        for words in "--framework dee" "--lora-targets q,ga" "--lora-targets ga"
        do
            COMP_WORDS=(memplan gpt2 $words)
            COMP_CWORD=3
            _memplan
            echo "${COMPREPLY[*]}"
        done')
    [ "$completed" = "deepspeed
q,gate
gate" ]
    expect 0 'words that bash completes' $?
fi

[ "$failures" -eq 0 ] || exit 1
