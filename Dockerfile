# The image of a release, from the archives that `make dist` has written:
#
#   docker buildx build --build-arg VERSION=v1.2.3 --tag croft .
#
# It holds croft, the certificates of public authorities, and nothing else: no
# shell and no C library. A test carries out the RUN line and runs croft in the
# folder that it makes.
FROM --platform=$BUILDPLATFORM golang:1.26-bookworm AS files
ARG VERSION
ARG TARGETARCH
COPY dist/croft_${VERSION}_linux_${TARGETARCH}.tar.gz /unpacked/release.tar.gz
WORKDIR /unpacked/image
RUN mkdir -p usr/bin usr/share/licenses/croft etc/ssl/certs var/lib/croft tmp && \
    tar -xzf ../release.tar.gz --no-same-owner --strip-components=1 -C usr/bin --wildcards '*/croft' && \
    tar -xzf ../release.tar.gz --no-same-owner --strip-components=1 -C usr/share/licenses/croft --wildcards '*/LICENSE' && \
    cp /etc/ssl/certs/ca-certificates.crt etc/ssl/certs/ && \
    echo 'croft:x:65532:65532:croft:/var/lib/croft:/usr/bin/croft' > etc/passwd && \
    echo 'croft:x:65532:' > etc/group && \
    chown 65532:65532 var/lib/croft && \
    chmod 1777 tmp

FROM scratch
ARG VERSION
COPY --from=files /unpacked/image /
LABEL org.opencontainers.image.title="Croft" \
      org.opencontainers.image.description="Leases and fencing for background agents, scheduled jobs and pipelines" \
      org.opencontainers.image.source="https://github.com/croft-dev/croft" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}"
USER 65532:65532
ENV CROFT_STORE=/var/lib/croft
VOLUME /var/lib/croft
ENTRYPOINT ["/usr/bin/croft"]
