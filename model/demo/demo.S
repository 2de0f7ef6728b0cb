/* demo.S: the files of the demo model as read-only data of the program. Symbols are hidden; each
 * file <stem> has ebro_demo_<stem> and ebro_demo_<stem>_end. The weights are aligned so that they
 * can be used where they are. */
    .section .rodata.ebro_demo, "a"

    .macro embed stem, file
    .balign 64
    .globl ebro_demo_\stem
    .hidden ebro_demo_\stem
    .type ebro_demo_\stem, STT_OBJECT
ebro_demo_\stem:
    .incbin "\file"
    .globl ebro_demo_\stem\()_end
    .hidden ebro_demo_\stem\()_end
    .type ebro_demo_\stem\()_end, STT_OBJECT
ebro_demo_\stem\()_end:
    .size ebro_demo_\stem, ebro_demo_\stem\()_end - ebro_demo_\stem
    .byte 0
    .endm

    embed config, "config.json"
    embed generation_config, "generation_config.json"
    embed tokenizer_config, "tokenizer_config.json"
    embed tiktoken, "tiktoken.model"
    embed weights, "model.safetensors"

    .section .note.GNU-stack, "", %progbits
