"""TLS between workers, and what it needs: certificates, and a port that seals what another port writes."""
