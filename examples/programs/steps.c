/* A program that runs its steps when it is told to. Compile: cc -O3 -march=native steps.c -o steps -lm
 *
 * A step is y = y + 0.5 (1 - y) for each of N numbers, which is 1 - 1/2^k after k steps.
 * Alone, ./steps N runs a thousand steps. */

#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static long long now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

int main(int count, char **words) {
    long long numbers = count > 1 ? atoll(words[1]) : 100000;
    double *y = calloc(numbers, sizeof *y);
    long long done = 0;
    char line[32] = "1000";
    const char *descriptor = getenv("BENCHMARKER_FD");
    FILE *in = descriptor ? fdopen(atoi(descriptor), "r") : NULL;
    FILE *out = descriptor ? fdopen(atoi(descriptor), "w") : stdout;

    if (y == NULL || out == NULL || (descriptor && in == NULL)) return 1;
    fprintf(out, "{\"event\": \"cost\", \"flops\": %lld, \"bytes\": %lld}\n", 3 * numbers, 16 * numbers);
    fprintf(out, "{\"event\": \"ready\"}\n");
    fflush(out);
    while (in == NULL || fgets(line, sizeof line, in)) {
        long long steps = atoll(line), begun = now_ns(), took;
        for (long long step = 0; step < steps; step++)
            for (long long n = 0; n < numbers; n++) y[n] += 0.5 * (1.0 - y[n]);
        took = now_ns() - begun;
        done += steps;
        fprintf(out, "{\"event\": \"block\", \"steps\": %lld, \"duration_ns\": %lld}\n", steps, took);
        fflush(out);
        if (in == NULL) break;
    }
    double error = 0.0;
    for (long long n = 0; n < numbers; n++) error = fmax(error, fabs(y[n] - (1.0 - pow(0.5, done))));
    fprintf(out, "{\"event\": \"check\", \"output\": \"y\", \"error\": %.17g, \"bound\": 1e-12}\n", error);
    fprintf(out, "{\"event\": \"end\"}\n");
    return fflush(out) == 0 ? 0 : 1;
}
