/* page.S: the files of the folder page/ as read-only data of the program. Symbols are hidden; each
 * file has eb_page_<stem> and, behind its last byte, eb_page_<stem>_end. */
    .section .rodata.eb_page, "a"

    .macro embed stem, file
    .globl eb_page_\stem
    .hidden eb_page_\stem
    .type eb_page_\stem, STT_OBJECT
eb_page_\stem:
    .incbin "\file"
    .size eb_page_\stem, . - eb_page_\stem
    .globl eb_page_\stem\()_end
    .hidden eb_page_\stem\()_end
eb_page_\stem\()_end:
    .byte 0
    .endm

    embed index_html, "index.html"
    embed style_css, "style.css"
    embed page_js, "page.js"
    embed talk_js, "talk.js"
    embed memory_js, "memory.js"
    embed server_js, "server.js"
    embed sse_js, "sse.js"
    embed store_js, "store.js"
    embed dom_js, "dom.js"

    .section .note.GNU-stack, "", %progbits
