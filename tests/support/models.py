"""Tiny models with random weights."""

import torch


def tiny_hf_model(kind: str, vocabulary: int, **changes):
    """A two-layer, four-head model of any architecture, with weights large enough to matter."""
    import transformers as tf

    llama = {
        "vocab_size": vocabulary,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 128,
    }
    grouped = {**llama, "num_key_value_heads": 2}
    gpt2 = {"vocab_size": vocabulary, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128}
    opt = {
        "vocab_size": vocabulary,
        "hidden_size": 32,
        "word_embed_proj_dim": 32,
        "ffn_dim": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 128,
    }
    t5 = {"vocab_size": vocabulary, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_heads": 4}
    t5 |= {"num_layers": 2, "decoder_start_token_id": 1}
    bart = {"vocab_size": vocabulary, "d_model": 32, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48}
    bart |= {"encoder_layers": 2, "decoder_layers": 2, "max_position_embeddings": 128}
    bart |= {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
    distil = {"vocab_size": vocabulary, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48}
    xlnet = {"vocab_size": vocabulary, "d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 48}
    bloom = {"vocab_size": vocabulary, "hidden_size": 32, "n_layer": 2, "n_head": 4}
    electra = {**llama, "embedding_size": 16}
    disentangled = {**llama, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]}
    marian = {**bart, "decoder_start_token_id": 1}
    mobile = {**llama, "embedding_size": 16, "intra_bottleneck_size": 32, "true_hidden_size": 32}
    xlm = {"vocab_size": vocabulary, "emb_dim": 32, "n_layers": 2, "n_heads": 4, "pad_index": 2}
    switch = {**t5, "num_decoder_layers": 2, "num_experts": 2}
    switch |= {"num_sparse_encoder_layers": 1, "num_sparse_decoder_layers": 1}
    switch_class = tf.SwitchTransformersForConditionalGeneration
    nllb = {**marian, "num_experts": 2, "encoder_sparse_step": 2, "decoder_sparse_step": 2}
    fsmt = {k: v for k, v in marian.items() if k != "vocab_size"} | {"langs": ["en", "de"]}
    fsmt |= {"src_vocab_size": vocabulary, "tgt_vocab_size": vocabulary}
    prophet = {"vocab_size": vocabulary, "hidden_size": 32, "decoder_start_token_id": 1}
    prophet |= {"encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "max_position_embeddings": 128}
    prophet |= {"num_encoder_layers": 2, "num_decoder_layers": 2}
    prophet |= {"num_encoder_attention_heads": 4, "num_decoder_attention_heads": 4}
    table = {
        "gpt2": (tf.GPT2LMHeadModel, tf.GPT2Config, gpt2),
        "openai": (tf.OpenAIGPTLMHeadModel, tf.OpenAIGPTConfig, gpt2),
        "gpt_neox": (tf.GPTNeoXForCausalLM, tf.GPTNeoXConfig, llama),
        "llama": (tf.LlamaForCausalLM, tf.LlamaConfig, grouped),
        "qwen2": (tf.Qwen2ForCausalLM, tf.Qwen2Config, grouped),
        "gemma2": (tf.Gemma2ForCausalLM, tf.Gemma2Config, {**grouped, "head_dim": 8}),
        "mistral": (tf.MistralForCausalLM, tf.MistralConfig, grouped),
        "gemma3": (tf.Gemma3ForCausalLM, tf.Gemma3TextConfig, {**grouped, "head_dim": 8}),
        "phi3": (tf.Phi3ForCausalLM, tf.Phi3Config, grouped),
        "starcoder2": (tf.Starcoder2ForCausalLM, tf.Starcoder2Config, grouped),
        "cohere2": (tf.Cohere2ForCausalLM, tf.Cohere2Config, grouped),
        "opt": (tf.OPTForCausalLM, tf.OPTConfig, opt),
        "bloom": (tf.BloomForCausalLM, tf.BloomConfig, bloom),
        "bert": (tf.BertForMaskedLM, tf.BertConfig, llama),
        "roberta": (tf.RobertaForMaskedLM, tf.RobertaConfig, llama),
        "t5": (tf.T5ForConditionalGeneration, tf.T5Config, t5),
        "bart": (tf.BartForConditionalGeneration, tf.BartConfig, bart),
        "distilbert": (tf.DistilBertForMaskedLM, tf.DistilBertConfig, distil),
        "albert": (tf.AlbertForMaskedLM, tf.AlbertConfig, {**llama, "embedding_size": 16}),
        "electra": (tf.ElectraForMaskedLM, tf.ElectraConfig, electra),
        "deberta": (tf.DebertaForMaskedLM, tf.DebertaConfig, disentangled),
        "deberta_v2": (tf.DebertaV2ForMaskedLM, tf.DebertaV2Config, disentangled),
        "mpnet": (tf.MPNetForMaskedLM, tf.MPNetConfig, llama),
        "marian": (tf.MarianMTModel, tf.MarianConfig, marian),
        "mobilebert": (tf.MobileBertForMaskedLM, tf.MobileBertConfig, mobile),
        "convbert": (tf.ConvBertForMaskedLM, tf.ConvBertConfig, electra),
        "fnet": (tf.FNetForMaskedLM, tf.FNetConfig, llama),
        "xlm": (tf.XLMWithLMHeadModel, tf.XLMConfig, xlm),
        "switch": (switch_class, tf.SwitchTransformersConfig, switch),
        "nllb_moe": (tf.NllbMoeForConditionalGeneration, tf.NllbMoeConfig, nllb),
        "fsmt": (tf.FSMTForConditionalGeneration, tf.FSMTConfig, fsmt),
        "prophetnet": (tf.ProphetNetForConditionalGeneration, tf.ProphetNetConfig, prophet),
        "mamba": (tf.MambaForCausalLM, tf.MambaConfig, {**llama, "state_size": 4}),
        "xlnet": (tf.XLNetLMHeadModel, tf.XLNetConfig, xlnet),
    }
    model_class, config_class, settings = table[kind]
    special = {"bos_token_id": 2, "eos_token_id": 3, "pad_token_id": 1}
    config = config_class(**{**special, **settings, **changes})
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    model = model_class(config)
    for name, parameter in model.named_parameters():
        if parameter.ndim > 1:  # sharp enough attention that a wrong mask cannot hide
            parameter.data.normal_(0, 0.3 if "embed" not in name and "wte" not in name else 1.0)
    return model.eval()
