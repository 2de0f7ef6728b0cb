#version 450
/* absent: stands where a kernel is that only some devices can run. Never launched: an op looks at
 * what the ladder chose. */
layout(local_size_x_id = 0) in;

void main() {}
