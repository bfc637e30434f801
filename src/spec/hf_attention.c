/*
 * Owns which attention kernels Hugging Face's class of a family has. Knows
 * nothing of what they keep.
 */
#include "spec/setup.h"

#include "base/banned.h"

static bool has_sdpa(const struct spec *m)
{
    static const enum family without[] = { FAM_MPT, FAM_GPT_NEO, FAM_GPTJ,
                                           FAM_GPT_OSS };
    if (m->family == FAM_FALCON) /* alibi is part of its mask */
        return true;
    /* softcap is refused: sdpa_attention.py */
    return !IS_AMONG(m->family, without) && m->position != POS_ALIBI
           && !(m->attn_softcap > 0);
}

static bool has_flash(const struct spec *m)
{
    if (m->family == FAM_LLAMA4 || m->family == FAM_DEEPSEEK_V32
        || m->family == FAM_GROK || m->family == FAM_LLAMA4_VISION)
        return false;
    return m->family != FAM_MPT && m->classes == 0 && m->position != POS_ALIBI
           && m->relative_buckets == 0;
}

enum attention spec_hf_attention(const struct spec *m, enum attention asked)
{
    if (m->block_stride > 0) /* its kernels, of blocks and not */
        return ATTN_FLASH;
    if (asked == ATTN_FLASH && has_flash(m))
        return ATTN_FLASH;
    if (asked != ATTN_EAGER && has_sdpa(m))
        return ATTN_SDPA;
    return ATTN_EAGER;
}
