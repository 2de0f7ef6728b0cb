/* demo.S: the files of the demo model as read-only data of the program. Symbols are hidden; each
 * file <stem> has ebro_demo_<stem> (bytes) and ebro_demo_<stem>_bytes (u64, how many). Aligned so
 * that the weights can be used where they are. */
    .section .rodata.ebro_demo, "a"

    .macro embed stem, file
    .balign 64
    .globl ebro_demo_\stem
    .hidden ebro_demo_\stem
    .type ebro_demo_\stem, STT_OBJECT
ebro_demo_\stem:
    .incbin "\file"
.Lend_\stem:
    .size ebro_demo_\stem, .Lend_\stem - ebro_demo_\stem
    .balign 8
    .globl ebro_demo_\stem\()_bytes
    .hidden ebro_demo_\stem\()_bytes
    .type ebro_demo_\stem\()_bytes, STT_OBJECT
    .size ebro_demo_\stem\()_bytes, 8
ebro_demo_\stem\()_bytes:
    .quad .Lend_\stem - ebro_demo_\stem
    .endm

    embed config, "config.json"
    embed generation_config, "generation_config.json"
    embed tokenizer_config, "tokenizer_config.json"
    embed tiktoken, "tiktoken.model"
    embed weights, "model.safetensors"
    embed golden, "golden.bin"

    .section .note.GNU-stack, "", %progbits
